-- ingests: the import of each landed file. rows_in = rows_kept + rows_quarantined.
-- grain: trace, file
-- reads: ingests
-- units: rows; instants are UTC; seconds
-- trace = name of the trace
-- file varchar = the landed file
-- format varchar = the file of sql/sources that read it
-- sha256 varchar = hash of all that the result depends on: the file, its mapping, the names in the catalogue
-- rows_in bigint = rows of the file; requests if a row has several
-- rows_kept bigint = rows that became requests
-- rows_quarantined bigint = rows in quarantine
-- rows_out_of_order bigint = kept rows earlier than the kept row before them; the import sorted them
-- first_at timestamptz = first arrival
-- last_at timestamptz = last arrival
-- largest_step_back_s double = largest time by which a row is earlier than the row before it
-- clock varchar = type of the source's timestamps: instants, or times relative to the start that the mapping names
-- columns varchar = the columns of the file that were read, and their units, where they were found by their names
select * from ingests
where trace = coalesce($trace, trace)
