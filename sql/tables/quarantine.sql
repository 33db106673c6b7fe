-- quarantine: rows of landed files that break a rule, with the rule and the original text.
-- grain: trace, file, row
-- reads: quarantine
-- units: row counts data rows from 1
-- trace = name of the trace
-- file varchar = the landed file
-- row bigint = position in the file
-- reason varchar = the first rule that the row breaks
-- raw varchar = the original row
select * from quarantine
where trace = coalesce($trace, trace)
