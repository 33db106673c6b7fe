-- Which requests migrated? Live migrations by level under each policy with migrations, and their latency compared with the other requests.
-- grain: policy, level
-- reads: outcomes
-- units: *_s seconds, shares 0 to 1
-- moved = requests whose last transfer was a live migration; moved_share = share of the level's requests
-- stopped_p50_s, stopped_p99_s = from the last token on one instance to the first token on the other
-- moved_e2e_p50_s, others_e2e_p50_s = time to the last token, of the migrated and of the other requests of the level
with counted as (
    select
        policy, level,
        count(*) as requests,
        sum(moves)::bigint as moved,
        avg(moves) as moved_share,
        quantile_disc(stopped_s, [0.5, 0.99]) as stopped,
        quantile_disc(e2e_s, 0.5) filter (where moves > 0) as moved_e2e_p50_s,
        quantile_disc(e2e_s, 0.5) filter (where moves = 0) as others_e2e_p50_s
    from outcomes
    where trace = $trace and day = $day::date
    group by policy, level
)

select
    policy, level, requests, moved, moved_share,
    stopped[1] as stopped_p50_s, stopped[2] as stopped_p99_s,
    moved_e2e_p50_s, others_e2e_p50_s
from counted
qualify sum(moved) over (partition by policy) > 0
order by policy, level
