"""Where samples come from, one file a source; the file's name is the key."""
