package org.falkirk;

/**
 * The header of every record that Falkirk writes: the writer, and the input record that caused it.
 *
 * <p>The same bytes as in `falkirk/kafka_client/header.py`: {@code application/incarnation/stamp/state_partition}; in a
 * record, {@code /tag} follows. Anyone who can write to a topic can write headers, and this class verifies no tag.
 *
 * @param application the identity of the home, 8 hexadecimal digits
 * @param incarnation the incarnation of the region that wrote the record, from 0
 * @param stamp the record's stamp
 * @param statePartition the state partition that computed the record, from 0
 */
public record Header(String application, long incarnation, Stamp stamp, long statePartition) {
    /** The key of Falkirk's header among the headers of a record. */
    public static final String KEY = "falkirk";
    /** No header of Falkirk is longer. */
    public static final int BYTES_MAX = 400;

    private static final int APPLICATION_DIGITS = 8;
    private static final int TAG_DIGITS = 24;

    public Header {
        if (application.length() != APPLICATION_DIGITS || !application.chars().allMatch(Wire::isHexadecimal)) {
            throw new IllegalArgumentException("\"" + application + "\" is not the identity of a home");
        }
        if (incarnation < 0 || statePartition < 0) {
            throw new IllegalArgumentException(
                    "incarnation " + incarnation + " and state partition " + statePartition + " start at 0");
        }
    }

    /**
     * Return the header in a value, without verifying who wrote it.
     *
     * @throws IllegalArgumentException if the value is malformed
     */
    public static Header decode(byte[] value) {
        Wire.Reader reader = new Wire.Reader(value);
        if (value.length > BYTES_MAX) {
            throw reader.malformed();
        }
        String application = reader.hexadecimal(APPLICATION_DIGITS);
        reader.skip('/');
        long incarnation = reader.number();
        reader.skip('/');
        Stamp stamp = Stamp.read(reader);
        reader.skip('/');
        long statePartition = reader.number();
        if (reader.skips('/')) { // earlier versions wrote no tag
            reader.hexadecimal(TAG_DIGITS);
        }
        reader.end();
        return new Header(application, incarnation, stamp, statePartition);
    }
}
