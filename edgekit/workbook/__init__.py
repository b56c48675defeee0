"""From a config to a finished run: the plan, papermill, what is finished already, and the run again from its record."""
