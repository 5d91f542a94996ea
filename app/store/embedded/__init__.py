"""A Postgres of our own for those who set no DATABASE_URL: found, made, started, watched, stopped.

`supervisor` is what the app uses: it owns the data folder (`lock`) or attaches. The owner's `server` runs the found
`binaries` on the `cluster` as the chosen `identity`, in a `child` that its `launcher` ties to our life. A process
that has a DATABASE_URL imports none of it but the `errors`.
"""
