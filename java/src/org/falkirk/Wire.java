package org.falkirk;

import java.nio.charset.StandardCharsets;

/** Reads the texts that Falkirk writes into headers; refuses each text that Falkirk would not write. */
final class Wire {
    private static final int SHOWN_MAX = 100;

    private Wire() {}

    /** Reads one value from its start to its end. */
    static final class Reader {
        private final byte[] value;
        private int at;

        Reader(byte[] value) {
            this.value = value;
        }

        /** Return the number here: without sign and leading zeros, below 2^63. */
        long number() {
            int start = at;
            long number = 0;
            while (at < value.length && value[at] >= '0' && value[at] <= '9') {
                int digit = value[at++] - '0';
                if (number > (Long.MAX_VALUE - digit) / 10) {
                    throw malformed();
                }
                number = number * 10 + digit;
            }
            if (at == start || (value[start] == '0' && at > start + 1)) {
                throw malformed();
            }
            return number;
        }

        /** Return the hexadecimal digits here, which must be exactly so many. */
        String hexadecimal(int digits) {
            int start = at;
            while (at < value.length && isHexadecimal(value[at])) {
                at++;
            }
            if (at - start != digits) {
                throw malformed();
            }
            return new String(value, start, digits, StandardCharsets.US_ASCII);
        }

        /** Skip this character if it is here, and return whether it was. */
        boolean skips(char character) {
            boolean here = at < value.length && value[at] == character;
            at += here ? 1 : 0;
            return here;
        }

        /** Skip this character, which must be here. */
        void skip(char character) {
            if (!skips(character)) {
                throw malformed();
            }
        }

        /** Refuse a value that does not end here. */
        void end() {
            if (at < value.length) {
                throw malformed();
            }
        }

        IllegalArgumentException malformed() {
            int shown = Math.min(value.length, SHOWN_MAX);
            String text = new String(value, 0, shown, StandardCharsets.ISO_8859_1);
            return new IllegalArgumentException("\"" + text + "\" is not a text of Falkirk");
        }
    }

    static boolean isHexadecimal(int character) {
        return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'f');
    }
}
