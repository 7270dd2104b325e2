"""The demonstration: three clinics in processes of their own, from files to a page in a minute."""
