"""S. Xi, J. Wilson, C. Lu, C. Gill, "RT-Xen: Towards Real-time Hypervisor Scheduling in Xen".

EMSOFT 2011; a module each for its figures 5 and 6 and its tables 1, 2 and 4.
"""
