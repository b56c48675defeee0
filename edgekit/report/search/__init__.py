"""Present a study of `edgekit search`: its Pareto front in words and figures, and its page.

`studies.py` reads study.json, `recommend.py` names the best trial for each objective, `importances.py` estimates the
effect of each option, `words.py`, `tables.py` and `figures.py` describe the study, `page.py` builds search.html, and
`terminal.py` prints the end of a search.
"""
