"""What zeros among the weights cost in accuracy, and what they are worth to the interpreters that we ship for."""
