"""Translate over gRPC: Translator, AsyncTranslator and their commands."""
