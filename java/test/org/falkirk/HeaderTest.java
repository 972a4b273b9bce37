package org.falkirk;

import java.nio.charset.StandardCharsets;
import java.util.List;

/** A header has one text form, and each other text is refused. */
public final class HeaderTest {
    private static final Header HEADER = new Header("deadbeef", 3, Stamp.of(0, 2, 17, 4, 0), 5);
    private static final String TEXT = "deadbeef/3/0.2.17.4.0/5";
    private static final String TAG = "/0123456789abcdef01234567";

    private static Header decoded(String text) {
        return Header.decode(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    public void aHeaderComesBackFromItsTextWithOrWithoutATag() {
        Check.equal(decoded(TEXT), HEADER);
        Check.equal(decoded(TEXT + TAG), HEADER);
    }

    public void malformedTextsAreRefused() {
        List<String> malformed = List.of(
                "", "/", "deadbeef", "deadbeef/3/0.2.17", "deadbee/3/0.2.17/5", "deadbeef0/3/0.2.17/5",
                "DEADBEEF/3/0.2.17/5", "deadbeef/03/0.2.17/5", "deadbeef/-3/0.2.17/5", "deadbeef/+3/0.2.17/5",
                "deadbeef/3/0.2/5", "deadbeef/3/0.2.17./5", "deadbeef/3/.0.2.17/5", "deadbeef/3/0..2.17/5",
                "deadbeef/3/0.2.17/", "deadbeef/3/0.2.17/5/", " " + TEXT, TEXT + " ", TEXT + "\n", TEXT + "\0",
                TEXT + TAG.substring(0, TAG.length() - 1), TEXT + TAG + "0", TEXT + TAG + "/",
                TEXT + TAG.toUpperCase(java.util.Locale.ROOT), "deadbeef/3/0.2.9223372036854775808/5",
                "deadbeef/3/0.2.99999999999999999999/5", "deadbeef/\u00b2/0.2.17/5", "deadbeef/3/0.2.17/\u00e9");
        for (String text : malformed) {
            Check.thrown(IllegalArgumentException.class, () -> decoded(text));
        }
    }

    public void theGreatestNumberIsRead() {
        Check.equal(decoded("deadbeef/3/0.2.9223372036854775807/5").stamp().offset(), Long.MAX_VALUE);
    }

    public void aTextThatIsTooLongIsRefusedAndShownInPart() {
        String longest = "deadbeef/3/0.2.17" + ".1".repeat((Header.BYTES_MAX - 19) / 2) + "/5";
        Check.equal(longest.length(), Header.BYTES_MAX - 1);
        Check.equal(decoded(longest).statePartition(), 5L);
        Check.equal(decoded(longest + "5").statePartition(), 55L);
        Throwable error = Check.thrown(IllegalArgumentException.class, () -> decoded(longest + "55"));
        Check.that(error.getMessage().length() < 200, "the message has the start of the text");
    }

    public void partsThatNoHeaderHasAreRefused() {
        Stamp stamp = Stamp.of(0, 2, 17);
        Check.thrown(IllegalArgumentException.class, () -> new Header("DEADBEEF", 0, stamp, 0));
        Check.thrown(IllegalArgumentException.class, () -> new Header("deadbee", 0, stamp, 0));
        Check.thrown(IllegalArgumentException.class, () -> new Header("deadbeef", -1, stamp, 0));
        Check.thrown(IllegalArgumentException.class, () -> new Header("deadbeef", 0, stamp, -1));
    }
}
