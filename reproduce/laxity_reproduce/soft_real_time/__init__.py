"""M. Lee et al., "Supporting Soft Real-Time Tasks in the Xen Hypervisor", VEE 2010: scheduler S.

A module for each part of its sections 2, 5 and 6, and one for what goes beyond it.
"""
