--
-- PostgreSQL database dump
--

SET statement_timeout = 0;

COPY public."LiteLLM_SpendLogs" (request_id, call_type, prompt_tokens, completion_tokens, "startTime", "endTime", "completionStartTime", model, metadata, cache_hit, team_id, session_id, status) FROM stdin;
chatcmpl-9f1	acompletion	182	30	2025-06-18 09:37:14.078	2025-06-18 09:37:15.578	2025-06-18 09:37:14.328	llama3.1-70b	{"usage_object": {"prompt_tokens_details": {"cached_tokens": 64}}, "note": "a \\"b\\""}	False	helpdesk-chat	s-1	success
chatcmpl-9f2	acompletion	0	0	2025-06-18 09:37:16	2025-06-18 09:37:17	\N	gpt-4o	{}	None	\N	\N	failure
chatcmpl-9f3	acompletion	50	10	2025-06-18 09:37:18	2025-06-18 09:37:18	\N	gpt-4o	{}	True	\N	\N	success
\.

ALTER TABLE ONLY public."LiteLLM_SpendLogs" ADD CONSTRAINT "LiteLLM_SpendLogs_pkey" PRIMARY KEY (request_id);
