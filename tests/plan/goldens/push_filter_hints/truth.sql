SELECT k FROM side WHERE active
