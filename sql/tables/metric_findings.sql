-- metric_findings: what was met on the way from a landed folder of metrics to its trace; a part of quality.
-- grain: trace, file, aspect, detail
-- reads: metric_findings
-- units: rows; share 0 to 1
-- trace = name of the trace
-- file varchar = the landed folder
-- aspect varchar = what was looked at
-- detail varchar = what was found
-- verdict varchar = ok, note (know it), warn (look into it)
-- rows bigint = rows that it is about, null where it is not about rows
-- share double = of the trace's requests, or as the detail says
select * from metric_findings
where trace = coalesce($trace, trace)
