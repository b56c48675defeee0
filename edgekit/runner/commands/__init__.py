"""What `edgerun.pyz` can do, one file each; the file's name is the command. Each of them offers

    HELP                        one line, without a full stop
    arguments(parser)           what it takes, besides --help
    run(options)                does it; a RunnerError's `exit_code` becomes the command's

A new command is a new file here; files that begin with `_` are shared parts. Only what is asked for is imported.
"""
