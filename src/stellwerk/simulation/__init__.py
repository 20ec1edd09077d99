"""The scheduler in virtual time: traces, generated demand, failures, costs, and the limits of what is possible."""
