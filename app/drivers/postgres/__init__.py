"""The product's store: jobs in PostgreSQL. The only place with SQL."""
