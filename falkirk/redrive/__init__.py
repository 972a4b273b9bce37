"""Redrive: dead letters are sent again to the topics that they came from, each once, whatever happens."""
