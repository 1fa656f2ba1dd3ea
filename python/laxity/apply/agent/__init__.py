"""What runs on a KVM host: sees its settings, changes them behind a journal, and puts them back.

The package is copied to the host. It needs Python 3.9 or newer there, and no other package.
"""
