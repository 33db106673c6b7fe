-- whatifs_in_order: the what-ifs of a day in the order of $names.
-- grain: case_name
-- reads: whatifs
-- units: as whatifs
select whatifs.* replace (split_part(case_name, '@', 1) as case_name)
from whatifs
inner join (select unnest($names) as case_name, generate_subscripts($names, 1) as place) using (case_name)
where trace = $trace and day = $day
order by place
