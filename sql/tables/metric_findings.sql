-- metric_findings: what was met on the way from a landed folder of metrics to its trace; a part of quality.
-- grain: trace, file, aspect, detail
-- reads: metric_findings
-- units: rows; shares
-- trace = name of the trace
-- file = the landed folder
-- aspect = what was looked at
-- detail = what was found
-- verdict = ok, note (know it), warn (look into it)
-- rows = rows that it is about, null where it is not about rows
-- share = of the trace's requests, or as the detail says
select * from metric_findings
where trace = coalesce($trace, trace)
