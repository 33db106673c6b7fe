-- ingests: what became of each landed file. rows_in = rows_kept + rows_quarantined.
-- grain: trace, file
-- reads: ingests
-- units: rows; instants are UTC; seconds
-- trace = name of the trace
-- file varchar = the landed file
-- format varchar = how it was read: a file of sql/sources
-- sha256 varchar = of all that the result depends on: the file, its mapping, the catalogue's names
-- rows_in bigint = rows of the file, requests where a row holds several
-- rows_kept bigint = of these, in requests
-- rows_quarantined bigint = of these, in quarantine
-- rows_out_of_order bigint = kept rows earlier than the kept row before them; they were sorted
-- first_at timestamptz = earliest arrival
-- last_at timestamptz = latest arrival
-- largest_step_back_s double = by how much a row is earlier than the one before it, at most
-- clock varchar = what the source's timestamps mean: instants, or times from the start that the mapping names
select * from ingests
where trace = coalesce($trace, trace)
