# Plays 200 games of "guess my number" against guess.awk and prints the mean number of guesses.
# The numbers are 1 to 1000, small ones more often. Every measurement draws other numbers, so the
# mean varies as a real metric does; how often a version was measured is counted in the folder $1.
version=$(cksum <guess.awk | cut -d' ' -f1)
printf . >>"$1/$version" || exit 1
seed=$((version % 100000 + $(wc -c <"$1/$version") * 7919))
awk "$(cat guess.awk)"'
BEGIN {
    x = ('"$seed"' * 48271) % 2147483647
    for (game = 1; game <= 200; game++) {
        x = (x * 16807) % 2147483647
        number = 1 + int(1000 * (x / 2147483647) ^ 4)
        low = 1; high = 1000
        do {
            g = int(guess(low, high)); guesses++
            if (g < low || g > high) { print "error: guessed " g ", not within " low " to " high; exit 1 }
            if (g < number) low = g + 1
            if (g > number) high = g - 1
        } while (g != number)
    }
    print "METRIC guesses=" guesses / 200
}'
