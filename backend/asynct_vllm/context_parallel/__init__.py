"""Decode context parallelism: the keys of a sequence are shared among ranks, partial outputs add.

vLLM gives rank r of N the tokens whose position p has p // I % N == r, for an interleave of I: runs
of I keys. The gate's window of K keys reaches K - 1 keys to the left of a run, and those belong to
other ranks. Every rank computes the keys of every token, so each stores the keys before its runs,
the halo, when it writes; nothing is exchanged when it reads.

In a rank's cache a halo key is a row like any other, whose value is zero: it takes part in the
window of the keys after it and adds nothing itself. So a rank's rows, in order of position, are a
plain paged sequence, and every kernel and path attends to it as it is. The rows are those of
`shard.Shard`; vLLM's own blocks hold them, each larger by its halo rows.
"""
