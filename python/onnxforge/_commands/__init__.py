"""The functions of the package, in one file for each group of commands.

Each is a command of the same name, with models and arrays instead of files where that is handy.
"""
