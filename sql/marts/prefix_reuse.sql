-- prefix_reuse: share of the prompts that an infinite prefix cache would have had, for traces with block hashes.
-- grain: trace, llm
-- reads: requests
-- units: blocks of the source's size (512 tokens in Mooncake); *_share 0 to 1
-- trace = name of the trace <- requests.trace
-- llm = the served network, which has the cache <- requests.llm
-- requests = number of requests: those with hashes <- requests.request_id
-- blocks = blocks of their prompts
-- distinct_blocks = different blocks: each has to be computed once
-- reuse_share = share of all blocks that an earlier request had; a hash stands for the block and all blocks before it
with hashed as (
    select null::varchar as trace, null::varchar as llm, null::ubigint[] as prefix_hashes
    where false
    union all by name
    select * from requests
),

blocks as (
    select trace, llm, request_id, unnest(prefix_hashes) as block
    from hashed
    where len(prefix_hashes) > 0
)

select
    trace, llm,
    count(distinct request_id) as requests,
    count(*) as blocks,
    count(distinct block) as distinct_blocks,
    1 - count(distinct block) / count(*) as reuse_share
from blocks
group by trace, llm
