-- Who was moved? Live moves by level under each policy whose requests move, and how late those were beside the others.
-- grain: policy, level
-- reads: outcomes
-- units: *_s seconds, shares 0 to 1
-- moved = requests whose last hand-over was a live move; moved_share: of the level's
-- stopped_p50_s, stopped_p99_s = from the last token at the one instance until the request went on at the other
-- moved_e2e_p50_s, others_e2e_p50_s = to the last token, of those and of the others of the level
select
    policy,
    level,
    count(*)                                                              as requests,
    sum(moves)::bigint                                                    as moved,
    avg(moves)                                                            as moved_share,
    quantile_disc(stopped_s, 0.5)                                         as stopped_p50_s,
    quantile_disc(stopped_s, 0.99)                                        as stopped_p99_s,
    quantile_disc(e2e_s, 0.5) filter (where moves > 0)                    as moved_e2e_p50_s,
    quantile_disc(e2e_s, 0.5) filter (where moves = 0)                    as others_e2e_p50_s
from outcomes
where trace = $trace and day = $day::date
group by policy, level
qualify sum(moved) over (partition by policy) > 0
order by policy, level
