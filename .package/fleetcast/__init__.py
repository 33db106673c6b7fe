"""fleetcast: trace analytics and forecasting for fleets that serve large language models."""
