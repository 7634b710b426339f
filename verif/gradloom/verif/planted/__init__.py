"""Planted faults: a check that cannot fail proves nothing.

:mod:`~gradloom.verif.planted.fault` plants one edit of the sources in a copy and runs the test that must notice it; the faults lie
in a file for each part of the machine.
"""
