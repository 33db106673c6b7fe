-- metric_findings: problems found while a folder of metrics became a trace; a part of quality.
-- grain: trace, file, aspect, detail
-- reads: metric_findings
-- units: rows; share 0 to 1
-- trace = name of the trace
-- file varchar = the landed file, a folder
-- aspect varchar = the aspect that was checked
-- detail varchar = the finding
-- verdict varchar = result of the check or comparison: ok, note (for information), warn (please check)
-- rows bigint = number of rows; null where the finding is not about rows
-- share double = share of the file's rows; for a finding about kept rows, of those; else of what detail names
select * from metric_findings
where trace = coalesce($trace, trace)
