-- Would a prefix cache help? What share of the prompts' blocks had been seen before, per llm, where the source has hashes.
-- grain: trace, llm
-- reads: prefix_reuse
-- units: reuse_share 0 to 1; uses_per_block how often a block is used, mean
select trace, llm, requests, reuse_share, blocks / distinct_blocks as uses_per_block
from prefix_reuse
order by trace, reuse_share desc
