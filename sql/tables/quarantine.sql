-- quarantine: rows of landed files that break a rule, with the rule and the text as it stood there.
-- grain: trace, file, row
-- reads: quarantine
-- units: row counts data rows from 1
-- trace = name of the trace
-- file = the landed file
-- row = place in the file
-- reason = the first rule that it breaks
-- raw = the row as it stood there
select * from quarantine
where trace = coalesce($trace, trace)
