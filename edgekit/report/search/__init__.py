"""A study of `edgekit search`, for people: read and checked, its front in words and figures, and a page of it.

`studies.py` reads study.json, `recommend.py` names the best point of each objective, `importances.py` says what each
option did, `words.py`, `tables.py` and `figures.py` show it, `page.py` draws search.html, and `show.py` is what the
terminal says at the end.
"""
