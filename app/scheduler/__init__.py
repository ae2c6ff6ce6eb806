"""The scheduler: the role that turns the times of declared schedules into jobs."""
