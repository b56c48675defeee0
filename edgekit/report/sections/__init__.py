"""One module for each topic, with its rows, tables, figures and sentences for notebooks, the page and the terminal."""
