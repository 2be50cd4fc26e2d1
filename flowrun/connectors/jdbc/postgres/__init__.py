"""`jdbc:postgresql:`: reads by ADBC, writes by COPY."""
