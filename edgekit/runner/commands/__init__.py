"""The commands of `edgerun.pyz`, one module each, named after the command. Each of them offers

    HELP                        one line, without a full stop
    arguments(parser)           adds its arguments, besides --help
    run(options)                runs it; a RunnerError's `exit_code` becomes the command's

To add a command, add a module here. Modules that begin with `_` are shared. Only the requested command is imported.
"""
