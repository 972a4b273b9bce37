package org.falkirk;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/**
 * The record of a region's input that caused an element, and the number of the derivative: `falkirk/theory/stamp.py`.
 *
 * <p>The numbers are the source, the partition, the offset, and one index per step that makes several records from one.
 * Stamps are compared as tuples, so a record comes before its derivatives.
 */
public final class Stamp implements Comparable<Stamp> {
    /** A stamp has a source, a partition and an offset. */
    static final int NUMBERS_MIN = 3;

    private final long[] numbers;

    private Stamp(long[] numbers) {
        this.numbers = numbers;
    }

    /**
     * Return the stamp with these numbers.
     *
     * @throws IllegalArgumentException if there are fewer than three numbers, or one is negative
     */
    public static Stamp of(long... numbers) {
        if (numbers.length < NUMBERS_MIN || Arrays.stream(numbers).anyMatch(number -> number < 0)) {
            throw new IllegalArgumentException(Arrays.toString(numbers) + " are not the numbers of a stamp");
        }
        return new Stamp(numbers.clone());
    }

    /**
     * Return the stamp of a text form.
     *
     * @throws IllegalArgumentException if the text is malformed
     */
    public static Stamp decode(String text) {
        Wire.Reader reader = new Wire.Reader(text.getBytes(StandardCharsets.UTF_8));
        Stamp stamp = read(reader);
        reader.end();
        return stamp;
    }

    /** Return the stamp that a text starts with, as {@link #toString} writes it; leave the reader behind it. */
    static Stamp read(Wire.Reader reader) {
        List<Long> numbers = new ArrayList<>();
        do {
            numbers.add(reader.number());
        } while (reader.skips('.'));
        if (numbers.size() < NUMBERS_MIN) {
            throw reader.malformed();
        }
        return new Stamp(numbers.stream().mapToLong(Long::longValue).toArray());
    }

    public long source() {
        return numbers[0];
    }

    public long partition() {
        return numbers[1];
    }

    public long offset() {
        return numbers[2];
    }

    @Override
    public int compareTo(Stamp other) {
        return Arrays.compare(numbers, other.numbers);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Stamp stamp && Arrays.equals(numbers, stamp.numbers);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(numbers);
    }

    /** Return the text form that a record carries: numbers joined by dots. */
    @Override
    public String toString() {
        return Arrays.stream(numbers).mapToObj(Long::toString).collect(Collectors.joining("."));
    }
}
