"""The course's judge and its command line: python3 -m labs.course --help, or make help."""
