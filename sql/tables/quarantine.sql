-- quarantine: rows of landed files that break a rule, with the rule and the text as it stood there.
-- grain: trace, file, row
-- reads: quarantine
-- units: row counts data rows from 1
-- trace = name of the trace
-- file varchar = the landed file
-- row bigint = place in the file
-- reason varchar = the first rule that it breaks
-- raw varchar = the row as it stood there
select * from quarantine
where trace = coalesce($trace, trace)
