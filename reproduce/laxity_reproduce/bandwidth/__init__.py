"""A dynamic bandwidth allocator for virtual machines (CCNC 2012), and what its evaluation avoids.

In the model of senders and a link that tests the allocator, and on this machine with real packets.
"""
