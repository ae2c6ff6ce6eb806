// What a page gains with a script. Every page reads and acts without one.
