"""Answer quality: scored answers, a model that generates them, and rules that select the serving llm."""
