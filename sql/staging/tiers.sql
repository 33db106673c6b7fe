-- The tier of a request where neither its source nor the mapping names one: the first rule that speaks.
-- The limits follow SageServe 2.2 (first token within a second or a minute, or a deadline of hours); the
-- confidences are judgements, there to be weighed, not measured. Silent rules leave the tier to the mapping's
-- shares, and so do rules whose tier the catalogue does not have: tier_source = dealt, confidence 0. sql/staging/patterns.sql then looks at how such an app arrives.
-- reads: none
-- tier_by_rule(app, initiator, deadline_s, ttft_s) = tier, rule and confidence; null where no rule speaks
create or replace temp macro tier_by_rule(app, initiator, deadline_s, ttft_s) as
    case
        when deadline_s <= 60
            then {'tier': 'iw_fast', 'rule': 'deadline', 'confidence': 0.95::double}
        when deadline_s <= 3600
            then {'tier': 'iw_normal', 'rule': 'deadline', 'confidence': 0.95::double}
        when deadline_s > 3600
            then {'tier': 'niw', 'rule': 'deadline', 'confidence': 0.95::double}
        when initiator = 'user'
            then {'tier': 'iw_fast', 'rule': 'initiator', 'confidence': 0.8::double}
        when initiator = 'agent'
            then {'tier': 'iw_normal', 'rule': 'initiator', 'confidence': 0.6::double}
        when regexp_matches(lower(app), 'batch|offline|nightly|embed|eval|index|label|translat|report|etl')
            then {'tier': 'niw', 'rule': 'app', 'confidence': 0.7::double}
        when regexp_matches(lower(app), 'chat|conversation|assistant|copilot|code|voice')
            then {'tier': 'iw_fast', 'rule': 'app', 'confidence': 0.7::double}
        when regexp_matches(lower(app), 'agent|rag|search|document|file|image')
            then {'tier': 'iw_normal', 'rule': 'app', 'confidence': 0.5::double}
        when ttft_s > 60
            then {'tier': 'niw', 'rule': 'latency', 'confidence': 0.5::double}
    end;
