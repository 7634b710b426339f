"""Mutation testing of the RTL: small wrong changes of every module, each of which a test of the suite must notice.

``operators`` says what may be changed, ``instrument`` puts a change into whatever is elaborated, ``plan`` finds all places and
samples them, ``killers`` names the tests, ``run`` runs them, ``equivalence`` shows that a mutant computes the same, ``page``
writes ``docs/mutants.md``.
"""
