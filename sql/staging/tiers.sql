-- The tier of a request if neither its source nor the mapping has one: the first rule that applies.
-- The limits follow SageServe 2.2 (first token within a second or a minute, or a deadline of hours). The
-- confidences are estimates, not measured. If no rule applies, or the catalogue does not have the rule's tier,
-- the tier follows the mapping's shares: tier_source 'dealt', confidence 0. sql/staging/patterns.sql then checks the arrivals of such an app.
-- reads: none
-- tier_by_rule(app, initiator, deadline_s, ttft_s) = tier, rule and confidence; null if no rule applies
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
