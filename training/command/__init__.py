"""What all commands share: parser, errors of users, progress, start-up, files written whole."""
