-- ingests: what became of each landed file. rows_in = rows_kept + rows_quarantined.
-- grain: trace, file
-- reads: ingests
-- units: rows; instants are UTC; seconds
-- trace = name of the trace
-- file = the landed file
-- format = how it was read: a file of sql/sources
-- sha256 = of all that the result depends on: the file, its mapping, the catalogue's names
-- rows_in = rows of the file, requests where a row holds several
-- rows_kept = of these, in requests
-- rows_quarantined = of these, in quarantine
-- rows_out_of_order = kept rows earlier than the kept row before them; they were sorted
-- first_at = earliest arrival
-- last_at = latest arrival
-- largest_step_back_s = by how much a row is earlier than the one before it, at most
-- clock = what the source's timestamps mean: instants, or times from the start that the mapping names
select * from ingests
where trace = coalesce($trace, trace)
