"""One module for each topic, with its rows, tables, figures and sentences for the notebook, the page and the terminal."""
