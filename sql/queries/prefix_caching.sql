-- Would a prefix cache help? Share of the prompts' blocks that an earlier request had, by llm, where the source has hashes.
-- grain: trace, llm
-- reads: prefix_reuse
-- units: reuse_share 0 to 1; uses_per_block mean number of uses of a block
select trace, llm, requests, reuse_share, blocks / distinct_blocks as uses_per_block
from prefix_reuse
order by trace, reuse_share desc
